"""Logins that need a token, by the standard library."""

from worker.login.tokens import Credentials, TokenError, Tokens, tokens_of

__all__ = ["Credentials", "TokenError", "Tokens", "tokens_of"]
