"""Values as people see them: plain words, HTML for notebooks, no secrets. Pure."""
