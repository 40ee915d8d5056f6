"""Values every layer speaks in: candidates, protocols, profiles, limits, errors. Standard library only."""
