# Takes out of a line of JSON or of an HTTP answer what differs between two runs of the same bits.
# Times, speeds, sizes of logs that hold them, and how work happened to be shared out: members of a JSON object.
s/"(step_time|time\/[^"]*|[^"]*seconds|[^"]*_per_second|mfu|[^"]*idle_ratio|metrics_bytes|created|date|queue\/[^"]*|workers\/[^"]*)": ?[-+0-9.eE]+(, )?//g
s/, }/}/
# Names that hold the time of their making, and what depends on their length.
s/"(cmpl|chatcmpl)-[0-9]+-[0-9]+"/"\1"/g
s/^(Content-Length: )[0-9]+/\1/
# How the server cuts a stream into HTTP chunks depends on when the client reads: their lengths and ends go.
s/\r$//
/^[0-9a-f]+$/d
/^$/d
