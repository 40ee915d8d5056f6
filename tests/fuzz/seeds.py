"""Inputs to start from, and the words that a mutator may put in."""

_HOST = b"Host: inference.local\r\n"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + _HOST
_CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n"

SEEDS: dict[str, tuple[bytes, ...]] = {
    "request": (
        b"GET /v1/models HTTP/1.1\r\n" + _HOST + b"\r\n",
        b"GET https://inference.local/v1/models?a=b HTTP/1.1\r\n" + _HOST + b"\r\n",
        _POST + b"Content-Length: 2\r\n\r\n{}",
        _POST + b"content-length: 2\r\nConnection: keep-alive, close\r\n\r\n{}",
        _POST + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nT: 1\r\n\r\n",
        _POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        _POST + b"Content-Length: 2\r\n\r\n{}" + _POST + b"Content-Length: 3\r\n\r\n{ }",
        b"POST /v1/messages HTTP/1.0\r\n" + _HOST + b"Connection: keep-alive\r\nContent-Length: 0\r\n\r\n",
        _POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        _POST + b"X-A: 1\r\n 2\r\n\r\n",
        b"GET /" + b"a" * 60 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
    ),
    "chunked": (
        b"0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\nGET ",
        b'5;a=b;c="d\\"e"\r\nhello\r\n1 ; x\r\na\r\n0\r\nT: 1\r\nU: 2\r\n\r\n',
        b"00000000000a\r\n0123456789\r\n0;x\r\n\r\n",
        b"FFFFFFFFFFFFFFFF\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"0\r\nContent-Length: 1\r\n\r\n",
    ),
    "connect": (
        _CONNECT + b"\r\n",
        _CONNECT + b"\r\n\x16\x03\x01\x00\x05",
        b"CONNECT INFERENCE.local.:443 HTTP/1.0\r\n\r\n",
        b"CONNECT a@inference.local:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        _CONNECT + b"Content-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + _HOST + b"\r\n",
        _CONNECT + b"X: " + b"a" * 40 + b"\r\n\r\n",
    ),
    "json": (
        b"{}",
        b'{"model":"asked","a":[1.10,{"model":null}],"n":123456789012345678901234567890}',
        b' { "a" : "\\u00e9\\n" , "model" : { "b" : [ ] } }\n',
        b'{"mod\\u0065l":1,"model":2}',
        b'{"a":"\xc3\xa9","b":1e999,"c":-0.0}',
        b'\xef\xbb\xbf{"model":1}',
        '{"model":1}'.encode("utf-16"),
        '{"model":1}'.encode("utf-32-be"),
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'[{"model":1}]',
        b"--b\r\nmodel\r\n",
    ),
    "events": (
        b"data: a\n\ndata: b\n\n",
        b"data: a\r\n\r\n: c\r\n\r\n",
        b"data: a\r\rdata: b\r\r",
        b"event: e\ndata: long long long long\n\n",
        b"a\n\r\n\rb\r\n\nc",
    ),
}

WORDS: dict[str, tuple[bytes, ...]] = {
    "request": (
        *(
            b"GET ",
            b"POST ",
            b"HEAD ",
            b" HTTP/1.1\r\n",
            b" HTTP/1.0\r\n",
            b"HTTP/2.0",
            b"\r\n",
            b"\r\n\r\n",
            b"https://",
        ),
        *(b"Host: ", b"inference.local", b"Content-Length: ", b"content-length: ", b"Transfer-Encoding: chunked\r\n"),
        *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n"),
        *(b"Expect: 100-continue\r\n", b"Content-Encoding: identity\r\n", b"0\r\n\r\n", b"1\r\na\r\n", b"/v1/models"),
    ),
    "chunked": (
        b"\r\n",
        b"0\r\n\r\n",
        b"1\r\na\r\n",
        b";a=b",
        b';a="',
        b'\\"',
        b"X: 1\r\n",
        b"Host: a\r\n",
        b"FFFFFFFF",
    ),
    "connect": (b"CONNECT ", b"inference.local", b":443", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"Host: ", b"\r\n\r\n"),
    "json": (
        *(
            b'"model"',
            b'"model":',
            b"\\u006d",
            b"\\ud83d\\ude00",
            b"\\",
            b'"',
            b"{",
            b"}",
            b"[",
            b"]",
            b"null",
            b"true",
        ),
        *(b"NaN", b"1e5", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00", b"\x00", b",", b":"),
    ),
    "events": (b"data: ", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r", b"\r\n", b": c", b"event: "),
}
