"""What following a table costs, compared with what people do today."""
