"""Ask for erasures, and prove them: keys from files, reports with signatures, their chain."""
