"""An index in Qdrant: on a server, or in a folder of this machine."""
