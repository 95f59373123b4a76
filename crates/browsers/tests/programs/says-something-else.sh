#!/bin/sh
echo 'GNU coreutils 9.1'
