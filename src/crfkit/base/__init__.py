"""What every room uses: files, threads, rules of parameters."""
