#!/bin/sh
echo "$0: error while loading shared libraries: libnss3.so: cannot open shared object file: No such file or directory" >&2; exit 127
