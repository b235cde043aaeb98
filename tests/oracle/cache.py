"""The cache of master rows, an offer at a time: who gets in, who has to leave (`paper`, `strict`, `decay`)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Reference:
    """Keys and their frequencies, in the order in which they got in."""

    policy: str
    slots: int
    halve: int | None = None
    held: dict[int, float] = field(default_factory=dict)
    evicted: list[int] = field(default_factory=list)
    offers: int = 0

    def offer(self, key: int, frequency: float) -> None:
        """A key that so many waiting rows matched."""
        again = self.held.pop(key, None) is not None
        if not again and len(self.held) >= self.slots:
            victim = min(self.held, key=self.held.__getitem__)
            if self.policy != "paper" and frequency <= self.held[victim]:
                self._age()
                return
            del self.held[victim]
            self.evicted.append(victim)
        self._age()
        self.held[key] = frequency

    def hit(self, key: int) -> None:
        """A row found its key here."""
        if self.policy == "decay":
            self.held[key] += 1

    def _age(self) -> None:
        self.offers += 1
        if self.policy == "decay" and self.offers % (self.halve or self.slots) == 0:
            self.held = {key: frequency / 2 for key, frequency in self.held.items()}
