"""Logins: what a client has to fetch before it is let in, by the standard library alone."""

from worker.login.tokens import Credentials, TokenError, Tokens, tokens_of

__all__ = ["Credentials", "TokenError", "Tokens", "tokens_of"]
