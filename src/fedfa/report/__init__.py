"""From finished runs to a page one can read: tables, figures and the report itself."""
