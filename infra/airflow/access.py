"""The login of Airflow's users, for the pages that the plugin mounts. The only module with private names of Airflow.

Airflow mounts an app of a plugin without a login, and has no public dependency for it. The public API would answer,
too, if the plugin passed the login of the user on. But then each page and each style sheet would cost a second request.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request

from streaming_core.regression.stages import DAG_ID


async def login(request: Request) -> Any:
    """The user of the request, which Airflow's own code determines.

    Raises:
        HTTPException: 401, the request has no valid login.
    """
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user  # every process loads the plugin

    return await get_user(request, None, await bearer_scheme(request))


def reader(user: Annotated[Any, Depends(login)]) -> Any:
    """The user, if the user may see the DAG's runs. An auth manager may query a database, so this runs in a thread.

    Raises:
        HTTPException: 403, the user lacks the permission.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

    allowed = get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=DAG_ID), user=user
    )
    if not allowed:
        raise HTTPException(403)
    return user
