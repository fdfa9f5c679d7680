"""The servers that a run talks to, and the machines they run on."""
