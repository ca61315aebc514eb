"""Requests and answers in the forms of the protocols that models are asked by, to and from messages and samples.

Of no web framework, no engine and no SDK: routes of a server and what records an agent's calls read the same forms.
"""
