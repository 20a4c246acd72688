"""From finished runs to a page one can read: tables, figures and the report itself."""

from fedfa.report.page import write_report

__all__ = ["write_report"]
