"""crfkit."""
