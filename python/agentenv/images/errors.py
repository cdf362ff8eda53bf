"""Errors of `images`.

AgentEnvError
├── NotFound
│   └── TemplateNotFound   no image has this id or name, or not with this tag
├── Unavailable
│   └── BuildFailed        an image could not be made
└── Corrupt
    └── ImageDamaged       an image's files are not what its manifest says
"""

from agentenv.base.errors import Corrupt, NotFound, Unavailable


class TemplateNotFound(NotFound):
    """No image has this id or name, or not with this tag."""

    code = "template_not_found"


class BuildFailed(Unavailable):
    """An image could not be made."""

    code = "image_build_failed"


class ImageDamaged(Corrupt):
    """An image's files are not what its manifest says."""

    code = "image_damaged"
