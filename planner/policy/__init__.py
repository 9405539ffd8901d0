"""What the curator says: the policy file, section by section."""
