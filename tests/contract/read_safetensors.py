"""Prints the tensors of a safetensors file as any tool reads them: by the published layout and nothing of ours.

    read_safetensors.py FILE      one line a tensor: name, dtype, shape, values
"""

import json
import struct
import sys

FORMATS = {"F32": "f", "F64": "d"}

with open(sys.argv[1], "rb") as file:
    content = file.read()
(length,) = struct.unpack_from("<Q", content)
header = json.loads(content[8 : 8 + length])
data = content[8 + length :]
assert len(content) % 4 == 0 and (8 + length) % 8 == 0, "data is not aligned"
assert header.pop("__metadata__")["format"] == "pt"

end = 0
for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, stop = entry["data_offsets"]
    assert begin == end, f"hole or overlap before {name}"
    letter = FORMATS[entry["dtype"]]
    count = 1
    for extent in entry["shape"]:
        count *= extent
    assert stop - begin == count * struct.calcsize("<" + letter), f"size of {name}"
    assert begin % struct.calcsize("<" + letter) == 0, f"alignment of {name}"
    values = struct.unpack_from(f"<{count}{letter}", data, begin)
    print(name, entry["dtype"], entry["shape"], *values)
    end = stop
assert end == len(data), "bytes after the last tensor"
