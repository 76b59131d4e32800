#!/usr/bin/env bash
# Builds the book with the explorer in it: target/book can be sent by any web server.
#
#     scripts/build_book.sh [--builds simd,plain,threads]
#
# Needs: mdbook (cargo install mdbook --version 0.5.4 --locked --no-default-features --root target/tools), and what
#        scripts/build_web.sh needs, which takes the options.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/target/tools/bin:$PATH"
command -v mdbook > /dev/null || { echo "$0: mdbook is missing; the head of this script says how to install it" >&2; exit 1; }
scripts/build_web.sh "$@" target/explorer
rm -rf target/book
mdbook build docs --dest-dir "$PWD/target/book"
cp -r target/explorer target/book/explorer-page
# The page is framed by a chapter: its memory can be shared if the whole book is isolated.
mv target/book/explorer-page/_headers target/book/_headers
echo "target/book has the book, and the explorer in explorer-page"
