# Spark's own scripts read this before each start of a JVM. Applications write event logs while a history server shows and deletes them: it
# touches a file every minute, so that one that was started later needs none of them to start again.
if [ -z "${SPARK_EVENT_LOG:-}" ]; then
  SPARK_EVENT_LOG=false
  [ -z "$(find /opt/events/.kept -mmin -10 2>/dev/null)" ] || SPARK_EVENT_LOG=true
fi
export SPARK_EVENT_LOG
