"""A model file, run by llama.cpp in a child process of ours.

The child has no keys and no network; a crash of the native parser or a load that holds the interpreter for seconds
stays in it. To the rest of the program it is an HTTP upstream on a unix socket.
"""
