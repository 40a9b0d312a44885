"""What the tests share: doubles, tables, servers, oracles. No test is in here."""
