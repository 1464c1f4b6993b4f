#!/usr/bin/env python3
"""Finds sentences in comments and documents that a reader has to read twice.

  scripts/prose.py FILE...        exit code 1 if it finds any; - reads a document from standard input

It looks for sentences of more than 30 words, and for turns such as an inverted beginning ("Of each entry, ..",
"Who reads .."), "so many", "nobody" and "but for". Code, tables and indented lines are not read, except for texts of
errors and help in Rust, which it searches for the turns.
"""
import re
import sys

LONG = 30
TURNS = [
    (r"^Of (each|all|every|a|an|the|both|equal|these|those|them|one|two|several)\b", "begin with the subject"),
    (r"^(Who|What|Where)(ever)? [a-z' ]{3,40}\b(is|are|has|have|does|comes|goes|was)\b[^?]*$", "name the thing, then say what it does"),
    (r"\bso (many|much) (bytes|entries|rows|keys|blocks|files|words|slots|lanes|threads|of)\b", "give the name of the number"),
    (r"\b(whoever|nobody|no one)\b", "name who"),
    (r"\bbut for\b", "except"),
    (r"\bone behind another\b", "one after another, or contiguous"),
    (r"\bas (they|it) lies?\b", "as stored"),
    (r"\b(with|to|for|from|by) whom\b", "name who"),
    (r"\bthat (is|are) no (?!longer)[a-z]+\b", "not a .."),
    (r"\b(is|are) to be [a-z]+ed\b", "must be, or an active verb"),
]


class Paragraph:
    def __init__(self, line):
        self.line, self.words = line, []


def paragraphs(kind, lines):
    """Yields a `Paragraph` for each run of comment lines, or of a document's lines."""
    now, fenced, block, item = None, False, False, False
    for number, line in enumerate(lines, 1):
        begins = False
        if kind == "md":
            text = line.rstrip()
        elif block or (kind != "rs" and re.match(r"\s*/\*", line)):
            text = re.sub(r"^\s*(/\*\*?|\*(?!/)) ?", "", line.rstrip())
            block = "*/" not in text
            text = text.split("*/")[0].rstrip() if not block else text
        else:
            found = re.match(r"\s*//[/!]? ?(.*)$", line)
            text = found.group(1).rstrip() if found else None
        if text is not None:
            fence = text.lstrip().startswith("```")
            fenced ^= fence
            plain = text.strip()
            listed = re.match(r"\s*([-*]|\d+\.)\s+", text)
            if fence or fenced or not plain or plain[0] in "#|<" or re.search(r"\S(   |\t)", text):
                text = None
            elif listed:
                text, begins, item = text[listed.end():], True, True
            elif text.startswith("  ") and not item:
                text = None
            else:
                item = item and text.startswith(" ")
        else:
            fenced = item = False
        if now and (text is None or begins):
            yield now
            now = None
        if text:
            now = now or Paragraph(number)
            now.words.append(text.strip())
    if now:
        yield now


def texts(path, lines):
    """Yields number and text of each string literal in a Rust file, up to its tests."""
    if "/src/" not in path or re.search(r"(^|/)tests(/|\.rs$)", path):
        return
    for number, line in enumerate(lines, 1):
        if line.strip() == "#[cfg(test)]":
            return
        if not re.match(r"\s*//", line):
            for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                yield number, text


def findings(text, most):
    """Yields each sentence of `text` that wants rewriting, with the advice. It may have `most` words, or any number."""
    for sentence in re.split(r"(?<=[.!?:;])\s+", text):
        plain = re.sub(r"`[^`]*`", "x", re.sub(r"\]\([^)]*\)", "]", sentence)).strip()
        for turn, advice in TURNS:
            if re.search(turn, plain):
                yield advice, sentence
        words = len(plain.split())
        if most and words > most and not re.search(r"[={}|]", plain):
            yield "%d words: cut it in two" % words, sentence


def main(paths):
    found = 0
    for path in paths:
        kind = "md" if path == "-" else path.rsplit(".", 1)[-1]
        lines = sys.stdin if path == "-" else open(path, encoding="utf-8", errors="replace")
        lines = list(lines)
        read = [(paragraph.line, " ".join(paragraph.words), LONG) for paragraph in paragraphs(kind, lines)]
        if kind == "rs":
            read += [(number, text, None) for number, text in texts(path, lines)]
        for number, text, most in read:
            for advice, sentence in findings(text, most):
                found += 1
                print("%s:%d: %s: %s" % (path, number, advice, sentence))
    return found > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
