"""What can be wrong with a request before it reaches a verb.

AgentEnvError
├── Invalid
│   ├── RequestInvalid       a body, query or header that cannot be understood
│   ├── FeatureUnsupported   a field of the contract that we cannot honour yet
│   ├── BodyTooLarge         more bytes than a control-plane request may have
│   ├── MethodNotAllowed     the path exists, the method does not
│   ├── PrivatePort          the port is private and the traffic token is missing or wrong
│   └── WakeDenied           a request to the daemon of a paused sandbox, without its token, does not wake it
├── Unauthorised
│   └── KeyRefused           no API key, more than one, or a wrong one
└── NotFound
    ├── RouteNotFound        no such path
    └── TemplateAliasUnknown no template has this name
"""

from agentenv.base.errors import Invalid, NotFound, Unauthorised


class RequestInvalid(Invalid):
    """A body, query or header that cannot be understood."""

    code = "request_invalid"


class FeatureUnsupported(Invalid):
    """A field of the contract that we cannot honour yet, and that would change behaviour."""

    code = "feature_unsupported"


class BodyTooLarge(Invalid):
    """More bytes than a control-plane request may have."""

    code = "body_too_large"


class MethodNotAllowed(Invalid):
    """The path exists, the method does not."""

    code = "method_not_allowed"

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{method} is not possible on {path}; use {' or '.join(allowed)}")
        self.allowed = allowed


class PrivatePort(Invalid):
    """The port is private and the traffic token is missing or wrong."""

    code = "private_port"


class WakeDenied(Invalid):
    """A request to the daemon of a paused sandbox, without its token, does not wake it."""

    code = "wake_denied"


class KeyRefused(Unauthorised):
    """No API key, more than one, or a wrong one."""

    code = "key_refused"


class RouteNotFound(NotFound):
    """No such path."""

    code = "route_not_found"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"route not found: {method} {path}")


class TemplateAliasUnknown(NotFound):
    """No template has this name."""

    code = "template_not_found"
