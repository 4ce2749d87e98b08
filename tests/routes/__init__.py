"""The same commands by every way into the engine: their logs are the same but for ids, names of files, times, sizes."""
