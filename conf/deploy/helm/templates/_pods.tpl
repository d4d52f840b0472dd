{{- /* Names, labels, rights and mounts that pods share. The rights are those of the Pod Security Standard "restricted". */}}

{{- define "cachecast.image" -}}
{{ required "image.repository: build conf/deploy/Containerfile, push it, and name it here" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "cachecast.match" -}}
app.kubernetes.io/name: cachecast
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .cache }}
cachecast/cache: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "cachecast.labels" -}}
{{ include "cachecast.match" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "cachecast.metadata" -}}
name: {{ .root.Release.Name }}-{{ .name | default .component }}
labels: {{- include "cachecast.labels" . | nindent 2 }}
{{- end }}

{{- /* A pod's rights; `account`: its uid. All have the group 10001, as the kernel shows a process's open files only to the
same uid and gid. */}}
{{- define "cachecast.pod" -}}
serviceAccountName: {{ .serviceAccount | default .root.Release.Name }}
automountServiceAccountToken: {{ if .serviceAccount }}true{{ else }}false{{ end }}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .account | default 10001 }}
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "cachecast.rights" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* One of our containers. `secrets`: files of conf/deploy/systemd/secrets; `needed`: those without which it cannot work. */}}
{{- define "cachecast.container" -}}
image: {{ include "cachecast.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{ include "cachecast.rights" . }}
envFrom:
  - configMapRef: {name: {{ .root.Release.Name }}-environment}
{{- range .needed }}
  - secretRef: {name: {{ $.root.Release.Name }}-{{ . }}}
{{- end }}
{{- range .secrets }}
  - secretRef: {name: {{ $.root.Release.Name }}-{{ . }}, optional: true}
{{- end }}
{{- end }}

{{- /* Mounts of each of our containers. */}}
{{- define "cachecast.mounts" -}}
- {name: settings, mountPath: /etc/cachecast, readOnly: true}
- {name: scratch, mountPath: /tmp, subPath: tmp}
- {name: scratch, mountPath: /var/lib/cachecast, subPath: home}
- {name: state, mountPath: /var/lib/prometheus/node-exporter, subPath: metrics}
{{- end }}

{{- define "cachecast.volumes" -}}
- name: settings
  configMap:
    name: {{ .root.Release.Name }}-settings
    items:
      - {key: base.toml, path: base.toml}
{{- range $name, $_ := .root.Values.caches }}
      - {key: {{ $name }}.toml, path: caches/{{ $name }}.toml}
{{- end }}
- name: scratch
  emptyDir: {sizeLimit: {{ .scratch | default "1Gi" }}}
- name: state
  persistentVolumeClaim: {claimName: {{ .root.Release.Name }}-state}
{{- end }}

{{- define "cachecast.captures" -}}
- name: captures
  persistentVolumeClaim: {claimName: {{ .root.Release.Name }}-captures}
{{- end }}

{{- /* Files that must be the account's alone: a Secret's are root's, so they are copied to memory before the rest starts. */}}
{{- define "cachecast.private" -}}
- name: private
  image: {{ include "cachecast.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  {{- include "cachecast.rights" . | nindent 2 }}
  command: [sh, -c, 'umask 077; mkdir -p /private/files; for file in /secret/*; do cp -Lf "$file" /private/files/; done']
  resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
  volumeMounts:
    - {name: secret, mountPath: /secret, readOnly: true}
    - {name: private, mountPath: /private}
{{- end }}

{{- define "cachecast.privateVolumes" -}}
- name: secret
  secret: {secretName: {{ .secret }}}
- name: private
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}

{{- /* Bytes of a size as settings write it (50TB, 1.5 TiB) or as Kubernetes does (50Ti, 50T). */}}
{{- define "cachecast.bytes" -}}
{{- $unit := regexFind "[kKMGTPE]i?" . }}
{{- $number := regexFind "^[0-9.]+" . | float64 }}
{{- $base := ternary 1024 1000 (hasSuffix "i" $unit) }}
{{- range until (index (dict "" 0 "k" 1 "K" 1 "M" 2 "G" 3 "T" 4 "P" 5 "E" 6) (trimSuffix "i" $unit)) }}
{{- $number = mulf $number $base }}
{{- end }}
{{- printf "%.0f" $number }}
{{- end }}

{{- /* Settings that only a rolling restart brings to a service. */}}
{{- define "cachecast.checksum" -}}
checksum/settings: {{ include (print .Template.BasePath "/settings.yaml") . | sha256sum }}
{{- end }}

{{- /* Cron schedule of each cycle, `after` minutes later. */}}
{{- define "cachecast.schedule" -}}
{{- $minutes := int .root.Values.cycle.minutes }}
{{- if lt $minutes 60 }}{{ .after }}-59/{{ $minutes }} * * * *
{{- else if eq $minutes 60 }}{{ .after }} * * * *
{{- else if eq $minutes 1440 }}{{ .after }} 0 * * *
{{- else }}{{ .after }} */{{ div $minutes 60 }} * * *
{{- end }}
{{- end }}
