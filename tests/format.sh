#!/usr/bin/env bash
# All C files are as clang-format 14 writes them.
# label: once
exec scripts/format --check
