"""Profiles: how a site is asked for machines. Data, kept beside the sweep file or in the user's folder."""

from pydantic import BaseModel, ConfigDict


class Profile(BaseModel):
    """One site's settings; every field has a default."""

    model_config = ConfigDict(extra="forbid", frozen=True)
