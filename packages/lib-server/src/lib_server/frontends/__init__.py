"""The protocols of chat front ends, each derived from the logs of runs."""
