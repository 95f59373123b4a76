#!/bin/sh
echo 'Google Chrome 147.0.7727.0 '
