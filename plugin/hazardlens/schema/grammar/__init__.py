"""Context-free grammars: read from Lark and GBNF text, held by the mask character by character, and always closed."""

from hazardlens.schema.grammar.closing import GrammarClosing
from hazardlens.schema.grammar.rules import Grammar
from hazardlens.schema.grammar.text import read_gbnf, read_lark

__all__ = ["Grammar", "GrammarClosing", "read_gbnf", "read_lark"]
