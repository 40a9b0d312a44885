"""What following a table costs, measured beside what people do today."""
