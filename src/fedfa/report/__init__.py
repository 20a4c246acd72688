"""From finished runs to a readable page: tables, figures and the report itself."""
