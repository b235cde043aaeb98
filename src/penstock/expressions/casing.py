"""Upper and lower case as Spark has them: whole words by Unicode's rules, where DuckDB maps letter by letter."""

from __future__ import annotations

UPPER, LOWER = "in_upper_case", "in_lower_case"
"""DuckDB's names of the two, once `macros` are there."""

_NEW = {
    **{0x19B: 0xA7DC, 0x264: 0xA7CB, 0x1C8A: 0x1C89},
    **{letter: letter - 1 for letter in (0xA7CD, 0xA7CF, 0xA7D3, 0xA7D5, 0xA7DB)},
    **{letter: letter - 0x20 for letter in range(0x10D70, 0x10D86)},
    **{letter: letter - 0x1B for letter in range(0x16EBB, 0x16ED4)},
}
"""Letters of the last versions of Unicode to those in upper case."""

_SMALL, _LARGE = ("".join(map(chr, letters)) for letters in (_NEW, _NEW.values()))
_CASED = rf"\p{{Lu}}\p{{Ll}}\p{{Lt}}ªº\x{{2160}}-\x{{217F}}Ⓐ-ⓩ🄰-🅉🅐-🅩🅰-🆉{_SMALL}{_LARGE}"
_IGNORED = r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}''.:·\x{387}\x{55F}\x{5F4}‧‘’․﹒＇．︓﹕："


def macros() -> str:
    """SQL that makes the two functions known to a DuckDB. Combining marks that its Unicode lacks are not seen at Σ."""
    longer = {letter: letter.upper() for letter in map(chr, range(0x80, 0x10000)) if len(letter.upper()) > 1}
    del longer["ß"]  # the only one that is common: it needs no search for the others
    text = "replace(x, 'ß', 'SS')"
    # Each letter by its place in a text: a query that has a call for each of them takes long to prepare.
    place = f"nullif(instr('{''.join(longer)}', c), 0)"
    other = f"coalesce(string_split('{'|'.join(longer.values())}', '|')[{place}], c)"
    expanded = f"array_to_string(list_transform(regexp_extract_all({text}, '(?s).'), lambda c: {other}), '')"
    last = f"([{_CASED}][{_IGNORED}]*)Σ([{_IGNORED}]*(?:[^{_CASED}{_IGNORED}]|$))"
    ended = rf"replace(regexp_replace(x, '{last}', '\1ς\2', 'g'), 'İ', 'i̇')"
    return f"""
        CREATE MACRO {UPPER}(x) AS CASE WHEN regexp_matches(x, '[{"".join(longer)}{_SMALL}]')
            THEN upper(translate({expanded}, '{_SMALL}', '{_LARGE}')) ELSE upper({text}) END;
        CREATE MACRO {LOWER}(x) AS CASE WHEN regexp_matches(x, '[İΣ{_LARGE}]')
            THEN lower(translate({ended}, '{_LARGE}', '{_SMALL}')) ELSE lower(x) END;
    """
