"""MMToM-QA: what a person in a household film believes and wants (Jin et al., ACL 2024)."""
