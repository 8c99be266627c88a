export PATH="$castoff_python_folder:$PATH"
