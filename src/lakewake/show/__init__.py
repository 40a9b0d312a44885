"""Values as people see them: plain text, HTML for notebooks, no secrets. Pure."""
