"""Find and delete the files that no retained version needs."""
