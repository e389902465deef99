"""Serves a video over RTSP with GStreamer's own server; run by the system's Python, which has GStreamer's bindings.

/usr/bin/python3 rtsp_server.py PORT VIDEO USER PASSWORD
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402


def main(port: str, video: str, user: str, password: str) -> None:
    """Serve until killed."""
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(f'( filesrc location="{video}" ! qtdemux ! h264parse ! rtph264pay name=pay0 config-interval=1 )')
    permissions = GstRtspServer.RTSPToken()
    permissions.set_string("media.factory.role", "viewer")
    auth = GstRtspServer.RTSPAuth()
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), permissions)
    server.set_auth(auth)
    factory.add_role_from_structure(
        Gst.Structure.from_string("viewer,media.factory.access=(boolean)true,media.factory.construct=(boolean)true")[0]
    )
    server.get_mount_points().add_factory("/live", factory)
    server.attach(None)
    print("ready", flush=True)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main(*sys.argv[1:])
