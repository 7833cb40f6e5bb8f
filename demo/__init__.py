"""The live demo: a scripted model server, three agents on real SDK clients, one collection."""
