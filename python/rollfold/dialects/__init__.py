"""The dialects of model calls: one module each, one interface (contract, section 8)."""
