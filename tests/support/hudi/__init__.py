"""Real Hudi tables, and what happens to them."""
