FROM scratch
COPY . /
ENV LANG=C.UTF-8
CMD ["python3"]
