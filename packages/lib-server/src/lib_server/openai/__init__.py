"""Routes in the shapes of OpenAI's API, for programs and chat front ends that speak it."""
