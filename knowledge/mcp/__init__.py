"""The Model Context Protocol at `/mcp`: what agents call as tools and read as resources.

A tool is a view of the HTTP API: its arguments are the body, its checks, its answer and its errors
are the view's, and its schemas are those of the OpenAPI description. What is here translates.
"""
