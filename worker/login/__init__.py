"""OAuth 2.0 tokens for logins, with the standard library only."""

from worker.login.tokens import Credentials, TokenError, Tokens, tokens_of

__all__ = ["Credentials", "TokenError", "Tokens", "tokens_of"]
