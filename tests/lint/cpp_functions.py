"""Finds the functions of a C++ file without a compiler: good enough to measure them.

Outside functions every `{` is a namespace or class (a scope), an initialiser, or the body of a function; which one is
read off the text since the last `;`, `{` or `}`. Inside a function only braces are counted, so a lambda belongs to the
function around it.
"""

import re
from collections import namedtuple

Function = namedtuple("Function", "first_line last_line parameters")

_NOISE = re.compile(
    r'R"(?P<delimiter>[^\s()\\]{0,16})\(.*?\)(?P=delimiter)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\[^'\n]{1,8}|\\'|[^'\\\n])'"  # a character, not a digit separator
    r"|//[^\n]*(?:\\\n[^\n]*)*|/\*.*?\*/",
    re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_SCOPE = re.compile(r"(?:inline\s+|export\s+|typedef\s+|static\s+|const(?:expr)?\s+)*(namespace|class|struct|union|enum)\b")
_BODY_TAIL = re.compile(r"(\)|\b(const|noexcept|override|final|mutable|try)|&&?)\s*$")
_TRAILING_RETURN = re.compile(r"\)[^;{}()]*->[^;{}]*$")
_INITIALISER_LIST = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[}]\s*$", re.DOTALL)
_NOT_THE_NAME = {"noexcept", "decltype", "alignas", "__launch_bounds__", "requires", "explicit", "__attribute__"}


def without_comments_and_strings(text):
    """The text with comments, literals and preprocessor lines blanked; every line keeps its number."""
    def blank(match):
        found = match.group()
        lines = "\n" * found.count("\n")
        return lines if found.startswith(("//", "/*")) else '""' + lines
    text = _NOISE.sub(blank, text)
    return _DIRECTIVE.sub(lambda match: "\n" * match.group().count("\n"), text)


def find_functions(text):
    code = without_comments_and_strings(text)
    functions = []
    head, head_line = "", 1  # the text since the last boundary, and the line where it begins
    line, position, parentheses = 1, 0, 0
    while position < len(code):
        char = code[position]
        if char == "{" and parentheses == 0 and _opens_scope(head):
            head = ""
        elif char == "{":
            end = _matching_brace(code, position)
            if parentheses == 0 and _opens_function(head):
                last_line = line + code.count("\n", position, end)
                functions.append(Function(head_line, last_line, _count_parameters(head)))
                head = ""
            else:
                head += "{}"
            line += code.count("\n", position, end)
            position = end
        elif char in ";}" and parentheses == 0:
            head = ""
        else:
            parentheses += (char == "(") - (char == ")")
            if head or not char.isspace():
                if not head:
                    head_line = line
                head += char
            line += char == "\n"
        head = re.sub(r"^(public|private|protected)\s*:(?!:)\s*$", "", head) if char == ":" else head
        position += 1
    return functions


def _matching_brace(code, start):
    depth = 0
    for position in range(start, len(code)):
        depth += (code[position] == "{") - (code[position] == "}")
        if depth == 0:
            return position
    return len(code) - 1


def _without_templates(head):
    head = head.replace("operator()", "operator_call").replace("->", "  ")
    head = re.sub(r"operator\s*[<>=!]+", "operator_compare", head)
    previous = None
    while previous != head:
        previous, head = head, re.sub(r"<[^<>]*>", "", head)
    return re.sub(r"^\s*template\s*", "", head)


def _opens_scope(head):
    plain = re.sub(r"\[\[.*?\]\]", "", _without_templates(head)).strip()
    if plain.startswith("extern") and "(" not in plain:
        return True
    # A struct as a return type, with a parameter list behind it, is a function.
    return _SCOPE.match(plain) is not None and not re.search(r"\w\s*\([^()]*\)\s*(const)?\s*$", plain)


def _opens_function(head):
    if "(" not in head:
        return False
    return bool(_BODY_TAIL.search(head) or _TRAILING_RETURN.search(head) or _INITIALISER_LIST.search(head))


def _count_parameters(head):
    plain = _without_templates(head)
    for match in re.finditer(r"([\w\]~]+)\s*\(", plain):
        if match.group(1) not in _NOT_THE_NAME:
            return _count_in_list(plain, match.end())
    return 0


def _count_in_list(text, start):
    depth, commas, empty = 1, 0, True
    for char in text[start:]:
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                break
        elif char == "," and depth == 1:
            commas += 1
        empty = empty and char.isspace()
    return 0 if empty else commas + 1
